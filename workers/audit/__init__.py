"""Tests of a judge before it is trusted: attacks (`rubricsvc judges audit`), repeatability and two test questions.

``cases`` are what is attacked, ``suites`` the attacks (data files in ``suites/``) and their plan, ``runner`` asks the
judge and computes the rates. ``repeatability`` asks the same questions again.
"""
