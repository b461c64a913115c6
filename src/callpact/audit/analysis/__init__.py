"""What the records say about contracts: drift, advice, replay, retry chains."""
