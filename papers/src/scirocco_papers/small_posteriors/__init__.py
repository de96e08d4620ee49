"""Ten small posteriors whose moments are known, to tune and to choose on."""
