"""The commands of these models: a module for each group, `scirocco topics` and so on."""
