"""The prompts of a run: read, held out, ordered, measured, replaced; and demonstrations."""
