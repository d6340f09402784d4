"""Arrivals that are not Poisson: peakedness, G/G/c, bursts measured from traces, demand that changes over time."""
