"""Support without domain words: typed fields, argument checks, files, progress, plotting, estimates, plug-ins."""
