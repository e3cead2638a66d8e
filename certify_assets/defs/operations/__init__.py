"""Jobs, the weekly recertification and the sensor that notices new runs."""
