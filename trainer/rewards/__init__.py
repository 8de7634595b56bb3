"""Where rewards come from: a judge in this process, the queue of a database, a service, checks; outages of these."""
