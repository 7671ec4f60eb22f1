"""Models split by layers: their stages, and the events and shared parameters of the stages."""
