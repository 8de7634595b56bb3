"""HTTP API over `rubricsvc.services`: `routes` makes a route of each of their methods; read `app` first."""
