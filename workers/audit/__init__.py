"""The red team: attacks on a judge, and what share of them it falls for. `rubricsvc judges audit` shows it.

``cases`` are what is attacked, ``suites`` the attacks (data files), ``plan`` tries these on those, ``runner`` asks the
judge, and ``rubricsvc.core.audit`` counts. To add attacks, write a file into ``suites/``.
"""
