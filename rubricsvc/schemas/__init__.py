"""Wire types of the HTTP API, shared by `rubricsvc.api` and `rubricsvc.client`, one module per noun."""
