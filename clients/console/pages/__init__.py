"""The pages: each module reads one part of a cluster through `Admin`, and has the table of its routes (`ROUTES`)."""
