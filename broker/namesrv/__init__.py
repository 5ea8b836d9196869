"""The name server: the route table, its processors, its root. Knows neither store nor delivery."""
