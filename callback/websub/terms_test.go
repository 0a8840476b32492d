package websub

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/subscription/registrytest"
)

// Each field of subscription.Terms is read, compared, echoed, shown and documented. Package registrytest checks that it
// is stored.
func TestTerms(t *testing.T) {
	documents := documents(t)
	for name, terms := range registrytest.Terms(t) {
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct {
				name       string
				has, wants subscription.Terms
				want       error
			}{
				{"same", terms, terms, nil},
				{"added", subscription.Terms{}, terms, subscription.ErrNotYours},
				{"dropped", terms, subscription.Terms{}, subscription.ErrNotYours},
			} {
				r := subscription.Request{Mode: subscription.Subscribe, Terms: tt.wants, By: "stranger"}
				if err := r.May(&subscription.Subscription{Terms: tt.has, By: "alice"}); err != tt.want {
					t.Errorf("%s: May() = %v, want %v", tt.name, err, tt.want)
				}
			}
			r := subscription.Request{Mode: subscription.Subscribe, Terms: terms}
			if got := r.Makes(&subscription.Subscription{}, now).Terms; !reflect.DeepEqual(got, terms) {
				t.Errorf("Makes() has terms %+v, want %+v", got, terms)
			}
			echo := form{Values: verification(&outlet.Question{Request: &r}, "topic", "status")}
			if terms.Secret != "" { // a callback does not receive its secret
				echo.Set("hub.secret", terms.Secret)
			}
			if got := echo.terms(); !reflect.DeepEqual(got, terms) || echo.err != nil {
				t.Errorf("terms() = %+v, %v of verification %v, want %+v", got, echo.err, echo.Values, terms)
			}
			if reflect.DeepEqual(viewTerms(&terms), termsView{}) {
				t.Error("viewTerms() is zero")
			}
			for name := range termsParams(&terms) {
				for document, text := range documents {
					if !strings.Contains(text, name) {
						t.Errorf("%s is missing in %s", name, document)
					}
				}
			}
		})
	}
}

// documents returns the texts that must have each parameter, by their names.
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
