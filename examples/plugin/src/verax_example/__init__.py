"""A plugin of verax: nothing is imported before somebody asks for one of its names."""
