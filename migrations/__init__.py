"""How the schema got here. Run by `rubricsvc db upgrade`; see `rubricsvc.store.session`."""
