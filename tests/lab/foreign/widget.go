package main

import (
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var widgets = schema.GroupVersion{Group: "foreign.example", Version: "v1"}

// Widget is the kind of somebody else's operator.
type Widget struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata,omitempty"`
	Spec            WidgetSpec   `json:"spec,omitempty"`
	Status          WidgetStatus `json:"status,omitempty"`
}

type WidgetSpec struct {
	Size  int64  `json:"size,omitempty"`
	Color string `json:"color,omitempty"`
}

type WidgetStatus struct {
	Observed   int64            `json:"observed,omitempty"`
	Conditions []meta.Condition `json:"conditions,omitempty"`
}

// WidgetList is a list of Widgets.
type WidgetList struct {
	meta.TypeMeta `json:",inline"`
	meta.ListMeta `json:"metadata,omitempty"`
	Items         []Widget `json:"items"`
}

func (in *Widget) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = nil
	for _, condition := range in.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *condition.DeepCopy())
	}
	return &out
}

func (in *WidgetList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = nil
	for i := range in.Items {
		out.Items = append(out.Items, *in.Items[i].DeepCopyObject().(*Widget))
	}
	return &out
}

func addWidgets(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(widgets, &Widget{}, &WidgetList{})
	meta.AddToGroupVersion(scheme, widgets)
	return nil
}

// definition is the Widgets' CustomResourceDefinition, with a default, rules and a status of its own.
func definition() *apiextensions.CustomResourceDefinition {
	least := float64(1)
	condition := apiextensions.JSONSchemaProps{Type: "object", Required: []string{"type", "status"}, Properties: map[string]apiextensions.JSONSchemaProps{
		"type": {Type: "string"}, "status": {Type: "string"}, "reason": {Type: "string"}, "message": {Type: "string"},
		"lastTransitionTime": {Type: "string", Format: "date-time"}, "observedGeneration": {Type: "integer", Format: "int64"},
	}}
	listType := "map"
	whole := apiextensions.JSONSchemaProps{Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{
		"spec": {Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{
			"size":  {Type: "integer", Format: "int64", Minimum: &least},
			"color": {Type: "string", Default: &apiextensions.JSON{Raw: []byte(`"red"`)}},
		}, XValidations: apiextensions.ValidationRules{{Rule: "!has(oldSelf.size) || self.size >= oldSelf.size", Message: "a widget never shrinks"}}},
		"status": {Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{
			"observed": {Type: "integer", Format: "int64"},
			"conditions": {Type: "array", XListType: &listType, XListMapKeys: []string{"type"},
				Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &condition}},
		}},
	}}
	return &apiextensions.CustomResourceDefinition{
		TypeMeta:   meta.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: meta.ObjectMeta{Name: "widgets.foreign.example"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: widgets.Group, Scope: apiextensions.NamespaceScoped,
			Names: apiextensions.CustomResourceDefinitionNames{Kind: "Widget", ListKind: "WidgetList", Plural: "widgets", Singular: "widget", ShortNames: []string{"wg"}},
			Versions: []apiextensions.CustomResourceDefinitionVersion{{
				Name: widgets.Version, Served: true, Storage: true,
				Schema:       &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &whole},
				Subresources: &apiextensions.CustomResourceSubresources{Status: &apiextensions.CustomResourceSubresourceStatus{}},
				AdditionalPrinterColumns: []apiextensions.CustomResourceColumnDefinition{
					{Name: "Size", Type: "integer", JSONPath: ".spec.size"},
				},
				SelectableFields: []apiextensions.SelectableField{{JSONPath: ".spec.color"}},
			}},
		},
	}
}
