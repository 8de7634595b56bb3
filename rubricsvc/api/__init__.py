"""HTTP API: one router per noun over `rubricsvc.store`. `rubricsvc.schemas` has the wire types; read `app` first."""
