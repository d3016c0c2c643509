"""The OTLP/gRPC receiver."""
