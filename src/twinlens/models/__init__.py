"""Models: from a spec or an object to a model that can be called, with its preprocessing and class names."""
