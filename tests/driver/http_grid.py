"""The grid: third-party copy between real servers, tokens, certificates. One group, in files by subject."""
from . import grid_certificates, grid_copies, grid_failures, grid_tokens, grid_xrootd

SCENARIOS = (grid_copies.SCENARIOS + grid_failures.SCENARIOS + grid_xrootd.SCENARIOS + grid_tokens.SCENARIOS
             + grid_certificates.SCENARIOS)
