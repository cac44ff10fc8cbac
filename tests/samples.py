SAMPLES: dict = {}
