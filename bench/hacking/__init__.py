"""Training against judges with a known bias, in the manner of CHERRL (arXiv 2606.04923): see `bench_hacking`."""
