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

// A property is a part of a schema, as far as it is looked at.
type property struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Properties           map[string]*property
	AdditionalProperties any
}

// TestSchema checks that the schema knows each value, and nothing else.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema property
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global")   // Helm's own
	delete(schema.Properties, "replicas") // refused with the right name, replicaCount
	sameKeys(t, "", readValues(t), &schema)
}

// optional are properties of Kubernetes that have no default here.
var optional = []string{"backendRequest", "claims", "scaleUp"}

// sameKeys checks the values at a name, and those below it.
func sameKeys(t *testing.T, name string, n *yaml.Node, p *property) {
	t.Helper()
	if len(p.Properties) == 0 {
		return
	}
	if p.AdditionalProperties != false {
		t.Errorf("a misspelt value in %q is let pass", name)
	}
	known := map[string]*yaml.Node{}
	for i := 0; i < len(n.Content); i += 2 {
		known[n.Content[i].Value] = n.Content[i+1]
	}
	for key, content := range known {
		if below, ok := p.Properties[key]; !ok {
			t.Errorf("the schema does not know %s%s", name, key)
		} else {
			sameKeys(t, name+key+".", content, below)
		}
	}
	for key := range p.Properties {
		if _, ok := known[key]; !ok && len(known) > 0 && !slices.Contains(optional, key) {
			t.Errorf("the schema knows %s%s, and values.yaml does not", name, key)
		}
	}
}

// A variable of the hub is either one that the chart sets, or one of config.
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
		if name == "RSHUB_SECRET_KEYS" { // a secret: config is not for those, extraEnv is
			if config || slices.Contains(own, name) {
				t.Errorf("%s can be in clear", name)
			}
			continue
		}
		if config == slices.Contains(own, name) {
			t.Errorf("%s is the chart's own: %v; of config: %v; it has to be one of both", name, !config, config)
		}
	}
	for name := range schema.Properties.Config.Properties {
		if !slices.Contains(all, name) {
			t.Errorf("config may have %s, which means nothing to the hub", name)
		}
	}
	if len(all) < 30 || len(own) < 10 {
		t.Errorf("%d variables were found, %d of them the chart's own", len(all), len(own))
	}
}
