package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A value is a row of the README's table.
type value struct{ name, fallback, meaning string }

// documented returns the values that have a comment of the form "# -- meaning", in
// their order. A value without one is an error, unless it holds values that have.
func documented(t *testing.T, n *yaml.Node, prefix string) (values []value) {
	t.Helper()
	for i := 0; i < len(n.Content); i += 2 {
		key, content := n.Content[i], n.Content[i+1]
		name := prefix + key.Value
		_, meaning, ok := strings.Cut(key.HeadComment, "# -- ")
		switch {
		case ok:
			var v any
			if err := content.Decode(&v); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value{name, string(text), strings.Join(strings.Split(meaning, "\n# "), " ")})
		case content.Kind == yaml.MappingNode && len(content.Content) > 0:
			values = append(values, documented(t, content, name+".")...)
		default:
			t.Errorf("%s says not what it is for", name)
		}
	}
	return values
}

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

// The README has a table of all values.
func TestTable(t *testing.T) {
	file := filepath.Join(chartDir, "README.md")
	readme, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| value | default | |\n|---|---|---|\n")
	for _, v := range documented(t, readValues(t), "") {
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", v.name, strings.ReplaceAll(v.fallback, "|", `\|`), strings.ReplaceAll(v.meaning, "|", `\|`))
	}
	const begin, end = "<!-- from values.yaml: go test ./... -update in deploy/helm/test -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(string(readme), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", file)
	}
	compare(t, file, before+begin+table.String()+end+after)
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
	source, err := os.ReadFile("../../../cmd/rshub/config.go")
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
		if name == "RSHUB_SECRET_KEYS" || name == "RSHUB_XMPP_SECRET" { // a secret: config is not for those, extraEnv is
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
