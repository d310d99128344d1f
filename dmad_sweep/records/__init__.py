"""Types that cross a process or storage boundary, with their versioned JSON. Standard library only."""
