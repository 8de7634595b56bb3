"""Use cases shared by the API, the command line and the SDK. They return values and raise errors, and never print."""
