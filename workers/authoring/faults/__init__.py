"""Faults that are planted into good completions, to see whether a rubric and its judge notice them.

By rule (`rules`, `check_faults`): the sentences that carry a criterion's content are deleted or altered, a fault is
added, or a check is violated. Or a model writes them (`written`). `catching` asks the judge
about them, and `testing` does all of it.
"""
