"""Analyses of recorded calls against contracts: drift, advice, replay, retry chains."""
