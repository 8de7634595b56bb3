"""The database: `tables`, and one module of queries per noun. All SQL is here; only `session` commits."""
