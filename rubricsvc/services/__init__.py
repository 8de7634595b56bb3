"""Use cases that the API, the command line and the SDK share; they return values and never print."""
