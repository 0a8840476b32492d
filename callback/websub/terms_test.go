package websub

import (
	"encoding/json"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/subscription/registrytest"
)

// Each field of subscription.Terms is read, compared, echoed, shown and documented. Package
// registrytest checks that it is stored.
func TestTerms(t *testing.T) {
	documents := documents(t)
	for name, terms := range registrytest.Terms(t) {
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct {
				name      string
				has, asks subscription.Terms
				want      error
			}{
				{"same", terms, terms, nil},
				{"added", subscription.Terms{}, terms, subscription.ErrNotYours},
				{"dropped", terms, subscription.Terms{}, subscription.ErrNotYours},
			} {
				t.Run(tt.name, func(t *testing.T) {
					r := subscription.Request{Mode: subscription.Subscribe, Terms: tt.asks, By: "stranger"}
					if err := r.May(&subscription.Subscription{Terms: tt.has, By: "alice"}); err != tt.want {
						t.Errorf("May() = %v, want %v", err, tt.want)
					}
				})
			}
			t.Run("kept", func(t *testing.T) {
				r := subscription.Request{Mode: subscription.Subscribe, Terms: terms}
				if got := r.Makes(&subscription.Subscription{}, now).Terms; !reflect.DeepEqual(got, terms) {
					t.Errorf("Makes() has terms %+v, want %+v", got, terms)
				}
			})
			t.Run("echoed", func(t *testing.T) {
				form := form{Values: url.Values{}}
				for _, p := range verification(&outlet.Question{Request: &subscription.Request{Mode: subscription.Subscribe, Terms: terms}}, "topic", "status") {
					form.Set(p.name, p.value)
				}
				if terms.Secret != "" { // a callback is not told its secret
					form.Set("hub.secret", terms.Secret)
				}
				if got := form.terms(); !reflect.DeepEqual(got, terms) || form.err != nil {
					t.Errorf("terms() = %+v, %v of verification %v, want %+v", got, form.err, form.Values, terms)
				}
			})
			shown := showTerms(&terms)
			t.Run("shown", func(t *testing.T) {
				if reflect.DeepEqual(shown, shownTerms{}) {
					t.Error("showTerms() is zero")
				}
			})
			t.Run("documented", func(t *testing.T) {
				for _, p := range shown.params() {
					for document, text := range documents {
						if !strings.Contains(text, p.name) {
							t.Errorf("got no %s in %s", p.name, document)
						}
					}
				}
			})
		})
	}
}

// documents returns the texts that must have each parameter, by what they are.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs, err := os.ReadFile("../../docs/callbacks.md")
	if err != nil {
		t.Fatal(err)
	}
	api, err := os.ReadFile("../../internal/server/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var schemas struct {
		Components struct {
			Schemas struct{ Form, Subscription json.RawMessage }
		}
	}
	if err := json.Unmarshal(api, &schemas); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(docs), "| parameter | |")
	table, _, _ = strings.Cut(table, "\n\n")
	s := schemas.Components.Schemas
	return map[string]string{"the table in docs/callbacks.md": table, "schema Form": string(s.Form), "schema Subscription": string(s.Subscription)}
}
