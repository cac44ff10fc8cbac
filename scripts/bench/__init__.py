"""What the benchmarks of calls share: operators, chains of them, and the time that they take."""
