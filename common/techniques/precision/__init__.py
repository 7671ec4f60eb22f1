"""Mixed precision: products take and return two bytes a number, from parameters in float32."""
