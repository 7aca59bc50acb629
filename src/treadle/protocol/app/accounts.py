"""Credentials: account/*. A struct that carries a secret does not show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from treadle.protocol.app.base import Closed, Empty, JsonObject, NoParams, Open, OrUnknown, Params, Variant, Wire, Word


class AuthMode(Word):
    apikey = "apikey"
    chatgpt = "chatgpt"
    chatgpt_auth_tokens = "chatgptAuthTokens"
    headers = "headers"
    agent_identity = "agentIdentity"
    personal_access_token = "personalAccessToken"
    bedrock_api_key = "bedrockApiKey"
    bedrock_access_keys = "bedrockAccessKeys"


class PlanType(Word):
    free = "free"
    go = "go"
    plus = "plus"
    pro = "pro"
    prolite = "prolite"
    promax = "promax"
    team = "team"
    self_serve_business_prolite = "self_serve_business_prolite"
    self_serve_business_usage_based = "self_serve_business_usage_based"
    business = "business"
    ent26 = "ent26"
    enterprise_cbp_automation = "enterprise_cbp_automation"
    enterprise_cbp_usage_based = "enterprise_cbp_usage_based"
    enterprise = "enterprise"
    edu = "edu"
    edu_plus = "edu_plus"
    edu_pro = "edu_pro"
    sci = "sci"
    sci_plus = "sci_plus"
    unknown = "unknown"


class LoginAppBrand(Word):
    codex = "codex"
    chatgpt = "chatgpt"


class CancelLoginAccountStatus(Word):
    canceled = "canceled"
    not_found = "notFound"


DesktopOnboardingEntrypoint = Literal["life_sciences"]


class RateLimitReachedType(Word):
    rate_limit_reached = "rate_limit_reached"
    workspace_owner_credits_depleted = "workspace_owner_credits_depleted"
    workspace_member_credits_depleted = "workspace_member_credits_depleted"
    workspace_owner_usage_limit_reached = "workspace_owner_usage_limit_reached"
    workspace_member_usage_limit_reached = "workspace_member_usage_limit_reached"


ChatgptAuthTokensRefreshReason = Literal["unauthorized"]


class GetAccountParams(Params, frozen=True, kw_only=True):
    refresh_token: bool = False


class ApiKeyAccount(Variant, frozen=True, kw_only=True, tag="apiKey"):
    pass


class ChatgptAccount(Variant, frozen=True, kw_only=True, tag="chatgpt"):
    plan_type: Open[PlanType]
    email: str | None = None
    workspace_name: str | None = None


class AmazonBedrockAccount(Variant, frozen=True, kw_only=True, tag="amazonBedrock"):
    uses_codex_managed_credentials: bool = False


class GcpAccount(Variant, frozen=True, kw_only=True, tag="gcp"):
    pass


Account = ApiKeyAccount | ChatgptAccount | AmazonBedrockAccount | GcpAccount


class GetAccountResponse(Wire, frozen=True, kw_only=True):
    requires_openai_auth: bool
    account: OrUnknown[Account] | None = None


class ApiKeyLoginAccountParams(Variant, frozen=True, kw_only=True, tag="apiKey"):
    _hidden: ClassVar = ("api_key",)

    api_key: str


class ChatgptLoginAccountParams(Variant, frozen=True, kw_only=True, tag="chatgpt"):
    app_brand: Closed[LoginAppBrand] | None = None
    codex_streamlined_login: bool = False
    use_hosted_login_success_page: bool = False


class ChatgptDeviceCodeLoginAccountParams(Variant, frozen=True, kw_only=True, tag="chatgptDeviceCode"):
    pass


class ChatgptAuthTokensLoginAccountParams(Variant, frozen=True, kw_only=True, tag="chatgptAuthTokens"):
    _hidden: ClassVar = ("access_token",)

    access_token: str
    chatgpt_account_id: str
    chatgpt_plan_type: str | None = None


class AmazonBedrockLoginAccountParams(Variant, frozen=True, kw_only=True, tag="amazonBedrock"):
    _hidden: ClassVar = ("api_key",)

    api_key: str
    region: str


class AmazonBedrockAccessKeysLoginAccountParams(Variant, frozen=True, kw_only=True, tag="amazonBedrockAccessKeys"):
    _hidden: ClassVar = ("access_key_id", "secret_access_key", "session_token")

    access_key_id: str
    region: str
    secret_access_key: str
    session_token: str | None = None


LoginAccountParams = (
    ApiKeyLoginAccountParams
    | ChatgptLoginAccountParams
    | ChatgptDeviceCodeLoginAccountParams
    | ChatgptAuthTokensLoginAccountParams
    | AmazonBedrockLoginAccountParams
    | AmazonBedrockAccessKeysLoginAccountParams
)


class ApiKeyLoginAccountResponse(Variant, frozen=True, kw_only=True, tag="apiKey"):
    pass


class ChatgptLoginAccountResponse(Variant, frozen=True, kw_only=True, tag="chatgpt"):
    auth_url: str
    login_id: str


class ChatgptDeviceCodeLoginAccountResponse(Variant, frozen=True, kw_only=True, tag="chatgptDeviceCode"):
    login_id: str
    user_code: str
    verification_url: str


class ChatgptAuthTokensLoginAccountResponse(Variant, frozen=True, kw_only=True, tag="chatgptAuthTokens"):
    pass


class AmazonBedrockLoginAccountResponse(Variant, frozen=True, kw_only=True, tag="amazonBedrock"):
    pass


LoginAccountResponse = (
    ApiKeyLoginAccountResponse
    | ChatgptLoginAccountResponse
    | ChatgptDeviceCodeLoginAccountResponse
    | ChatgptAuthTokensLoginAccountResponse
    | AmazonBedrockLoginAccountResponse
)


class CancelLoginAccountParams(Params, frozen=True, kw_only=True):
    login_id: str


class CancelLoginAccountResponse(Wire, frozen=True, kw_only=True):
    status: Open[CancelLoginAccountStatus]


LogoutAccountParams = NoParams


LogoutAccountResponse = Empty


class CreditsSnapshot(Wire, frozen=True, kw_only=True):
    has_credits: bool
    unlimited: bool
    balance: str | None = None


class SpendControlLimitSnapshot(Wire, frozen=True, kw_only=True):
    limit: str
    remaining_percent: int
    resets_at: int
    used: str


class RateLimitWindow(Wire, frozen=True, kw_only=True):
    used_percent: int
    resets_at: int | None = None
    window_duration_mins: int | None = None


class RateLimitSnapshot(Wire, frozen=True, kw_only=True):
    credits: CreditsSnapshot | None = None
    individual_limit: SpendControlLimitSnapshot | None = None
    limit_id: str | None = None
    limit_name: str | None = None
    normal_model_slug: str | None = None
    plan_type: Open[PlanType] | None = None
    primary: RateLimitWindow | None = None
    rate_limit_reached_type: Open[RateLimitReachedType] | None = None
    secondary: RateLimitWindow | None = None
    spend_control_reached: bool | None = None


class GetAccountRateLimitsParams(Params, frozen=True, kw_only=True):
    exclude_reset_credit_details: bool = False
    supports_luna_reserve: bool = False


class GetAccountRateLimitsResponse(Wire, frozen=True, kw_only=True):
    rate_limits: RateLimitSnapshot
    account_id: str | None = None
    ordinary_usage_allowed: bool | None = None
    rate_limit_reset_credits: JsonObject | None = None
    rate_limit_upsell: Any = None
    rate_limits_by_limit_id: Mapping[str, RateLimitSnapshot] | None = None


BedrockCheckGovCloudRequirementsParams = NoParams


class BedrockCheckGovCloudRequirementsResponse(Wire, frozen=True, kw_only=True):
    is_gov_cloud: bool
    should_warn: bool


class AccountUpdatedNotification(Wire, frozen=True, kw_only=True):
    auth_mode: Open[AuthMode] | None = None
    plan_type: Open[PlanType] | None = None


class AccountRateLimitsUpdatedNotification(Wire, frozen=True, kw_only=True):
    rate_limits: RateLimitSnapshot


class AccountLoginCompletedNotification(Wire, frozen=True, kw_only=True):
    success: bool
    error: str | None = None
    login_id: str | None = None
    onboarding_entrypoint: Open[DesktopOnboardingEntrypoint] | None = None


class ChatgptAuthTokensRefreshParams(Wire, frozen=True, kw_only=True):
    reason: Open[ChatgptAuthTokensRefreshReason]
    previous_account_id: str | None = None


class ChatgptAuthTokensRefreshResponse(Wire, frozen=True, kw_only=True):
    _hidden: ClassVar = ("access_token",)

    access_token: str
    chatgpt_account_id: str
    chatgpt_plan_type: str | None = None
