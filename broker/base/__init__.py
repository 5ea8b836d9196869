"""What every part of the broker may use: errors, clocks, histograms, address ranges, printable text."""
