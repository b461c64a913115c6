"""The call protocol of seed 001: events on a bus, the requests that are pending, what answers them."""
