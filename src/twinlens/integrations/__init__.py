"""Integrations: our metrics inside Captum, Quantus, torchmetrics and pytorch-grad-cam, called as theirs are."""
