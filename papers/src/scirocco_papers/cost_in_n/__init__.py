"""What a fixed accuracy costs SGLD and SGLD-CV as the data grow."""
