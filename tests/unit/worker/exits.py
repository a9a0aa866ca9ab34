"""A module that ends each program that imports it."""

import sys

sys.exit("not today.")
