"""Mixed precision: products take and return numbers of two bytes, while parameters are in float32."""
