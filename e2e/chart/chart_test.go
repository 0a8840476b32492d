package chart

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files and the table of values")

const (
	chartDir  = "../../deploy/helm/rshub"
	release   = "rshub"
	namespace = "hubs"
)

// kubeVersion is the oldest supported version.
var kubeVersion = &chartutil.KubeVersion{Version: "v1.30.0", Major: "1", Minor: "30"}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// parse parses values. It sets an image if they have none, because the chart requires one.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	image, ok := values["image"].(map[string]any)
	if !ok {
		image = map[string]any{}
		values["image"] = image
	}
	if _, ok := image["repository"]; !ok {
		image["repository"] = "registry.example.org/rshub"
	}
	return values
}

// cases returns the values of each combination by name.
func cases(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("cases/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("got %d combinations, %v, want at least 8", len(files), err)
	}
	all := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(f), ".yaml")] = string(text)
	}
	return all
}

// render renders the chart as helm install does, and returns the text of each
// template by its path in the chart.
func render(t *testing.T, values map[string]any, in cluster) (map[string]string, error) {
	t.Helper()
	c := loadChart(t)
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *kubeVersion
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, options, caps)
	if err != nil {
		return nil, err
	}
	texts, err := engine.RenderWithClientProvider(c, all, in)
	if err != nil {
		return nil, err
	}
	byPath := map[string]string{}
	for name, text := range texts {
		if strings.TrimSpace(text) != "" {
			byPath[strings.TrimPrefix(name, path.Join(c.Name(), "templates")+"/")] = text
		}
	}
	return byPath, nil
}

// A cluster has the existing Secrets by name, for lookups of the chart.
type cluster map[string]map[string][]byte

func (c cluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	if apiVersion != "v1" || kind != "Secret" {
		return nil, false, fmt.Errorf("got lookup of %s %s, want only Secrets", apiVersion, kind)
	}
	return secrets{cluster: c}, true, nil
}

type secrets struct {
	dynamic.NamespaceableResourceInterface // nil, because no other method is called
	cluster                                cluster
}

func (s secrets) Namespace(string) dynamic.ResourceInterface { return s }

func (s secrets) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	data, ok := s.cluster[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	object, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "data": data})
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, yaml.Unmarshal(object, &u.Object)
}

// installed has fixed tokens, so that renderings are reproducible.
var installed = cluster{"rshub-tokens": fixedTokens, "rshub-push-tokens": fixedTokens}

var fixedTokens = map[string][]byte{
	"publish": []byte("rshub_" + strings.Repeat("P", 26)),
	"follow":  []byte("rshub_" + strings.Repeat("F", 26)),
	"operate": []byte("rshub_" + strings.Repeat("O", 26)),
}

// TestLint runs helm lint --strict.
func TestLint(t *testing.T) {
	for name, text := range cases(t) {
		t.Run(name, func(t *testing.T) {
			result := lint.AllWithKubeVersion(chartDir, parse(t, text), namespace, kubeVersion)
			for _, m := range result.Messages {
				if m.Severity >= support.WarningSev {
					t.Error(m)
				}
			}
		})
	}
}

// TestGolden compares three renderings with reviewed files. TestManifests checks all cases.
func TestGolden(t *testing.T) {
	for _, name := range []string{"default", "cluster", "closed"} {
		t.Run(name, func(t *testing.T) {
			texts, err := render(t, parse(t, cases(t)[name]), installed)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, filepath.Join("golden", name+".txt"), texts["NOTES.txt"])
			delete(texts, "NOTES.txt")
			var all strings.Builder
			for _, file := range slices.Sorted(maps.Keys(texts)) {
				fmt.Fprintf(&all, "---\n# %s\n%s\n", file, strings.Trim(strings.TrimPrefix(strings.TrimSpace(texts[file]), "---"), "\n"))
			}
			compare(t, filepath.Join("golden", name+".yaml"), all.String())
		})
	}
}

// compare compares a text with a file, or with -update writes it.
func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		line := 0
		gots, wants := strings.Split(got, "\n"), strings.Split(string(want), "\n")
		for line < min(len(gots), len(wants))-1 && gots[line] == wants[line] {
			line++
		}
		t.Errorf("%s differs from line %d on; run go test -update to update it; got\n%s\nwant\n%s", file, line+1, gots[line], wants[line])
	}
}
