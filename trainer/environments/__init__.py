"""Environments: what a policy acts in, turn by turn, through tools. `environment` has the protocol."""
