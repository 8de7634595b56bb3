"""Tests of a judge before it is trusted: attacks (`rubricsvc judges audit`) and repeatability.

``cases`` are what is attacked, ``suites`` the attacks (data files), ``plan`` combines them, ``runner`` asks the judge,
and ``rubricsvc.stats.audit`` computes the rates. To add attacks, write a file into ``suites/``. ``repeatability`` asks
the same questions again.
"""
