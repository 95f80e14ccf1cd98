"""The network card: who may open an endpoint on which VNI."""
