package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

func readValues(t *testing.T) *yaml.Node {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Content[0]
}

// A property is the checked part of a schema.
type property struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Properties           map[string]*property
	AdditionalProperties any
}

// TestSchema checks that the schema and values.yaml have the same values.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema property
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global")   // a value of Helm
	delete(schema.Properties, "replicas") // rejected with a hint to replicaCount
	sameKeys(t, "", readValues(t), &schema)
}

// optional are properties of Kubernetes without a default in the chart.
var optional = []string{"backendRequest", "claims", "scaleUp"}

// sameKeys compares the values below a name with the schema.
func sameKeys(t *testing.T, name string, n *yaml.Node, p *property) {
	t.Helper()
	if len(p.Properties) == 0 {
		return
	}
	if p.AdditionalProperties != false {
		t.Errorf("schema allows unknown values in %q", name)
	}
	known := map[string]*yaml.Node{}
	for i := 0; i < len(n.Content); i += 2 {
		known[n.Content[i].Value] = n.Content[i+1]
	}
	for key, content := range known {
		if below, ok := p.Properties[key]; !ok {
			t.Errorf("schema lacks %s%s", name, key)
		} else {
			sameKeys(t, name+key+".", content, below)
		}
	}
	for key := range p.Properties {
		if _, ok := known[key]; !ok && len(known) > 0 && !slices.Contains(optional, key) {
			t.Errorf("values.yaml lacks %s%s of the schema", name, key)
		}
	}
}

// TestVariables checks that the chart either sets each variable of the hub, or allows it in config.
func TestVariables(t *testing.T) {
	source, err := os.ReadFile("../../cmd/rshub/config.go")
	if err != nil {
		t.Fatal(err)
	}
	helper, err := os.ReadFile(filepath.Join(chartDir, "templates/_refuse.tpl"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct{ Config property }
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`RSHUB_[A-Z_]+`)
	own := variable.FindAllString(regexp.MustCompile(`\nRSHUB_LISTEN .*\n`).FindString(string(helper)), -1)
	var all []string
	for _, tag := range regexp.MustCompile(`envconfig:"RSHUB_[A-Z_]+"`).FindAllString(string(source), -1) {
		name := variable.FindString(tag)
		all = append(all, name)
		_, config := schema.Properties.Config.Properties[name]
		if name == "RSHUB_SECRET_KEYS" { // secrets belong in extraEnv, not in config
			if config || slices.Contains(own, name) {
				t.Errorf("secret %s is allowed in config, or set by the chart", name)
			}
			continue
		}
		if config == slices.Contains(own, name) {
			t.Errorf("variable %s is set by the chart: %v; allowed in config: %v; want exactly one", name, config, config)
		}
	}
	for name := range schema.Properties.Config.Properties {
		if !slices.Contains(all, name) {
			t.Errorf("schema allows unknown variable %s in config", name)
		}
	}
	if len(all) < 30 || len(own) < 10 {
		t.Errorf("found %d variables, %d set by the chart, want at least 30 and 10", len(all), len(own))
	}
}
