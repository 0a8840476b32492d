package openapi

import (
	"encoding/json"
	"testing"
)

// The version and the base URL of the hub are in the description.
func TestDocument(t *testing.T) {
	var d struct {
		OpenAPI string
		Info    struct{ Version string }
		Servers []struct{ URL string }
	}
	if err := json.Unmarshal(Document(`v1"2`, "https://hub.example.org/a"), &d); err != nil {
		t.Fatal(err)
	}
	if d.OpenAPI != "3.1.0" || d.Info.Version != `v1"2` || len(d.Servers) != 1 || d.Servers[0].URL != "https://hub.example.org/a" {
		t.Errorf("the description is of %+v", d)
	}
}
