"""Past incidents, replayed with faults and graded by the systems of record."""
