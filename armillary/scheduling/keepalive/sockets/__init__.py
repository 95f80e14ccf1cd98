"""What a running platform needs: a controller, and the settings of Knative, OpenFaaS and OpenWhisk."""
