"""Questions on statements: whether a completion says what a sentence of a document says, or its contrary."""
