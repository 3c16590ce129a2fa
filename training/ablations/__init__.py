"""The papers' ablations on the demo's data: rows as data, one bench that runs them, one table of all."""
